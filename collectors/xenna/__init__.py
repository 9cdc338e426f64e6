"""Progress, cluster and stages of cosmos-xenna pipelines, from the records they leave on disk."""
