"""CPUs, memory, disks and GPUs of the node this runs on."""

# Variables the collector reads, set inside a Slurm job.
ENVIRONMENT = ("SLURM_JOB_PARTITION",)
PER_NODE = True
