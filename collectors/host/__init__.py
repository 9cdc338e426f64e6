"""CPUs, memory, disks and GPUs of the node this runs on."""

# Variables the collector reads, set inside a Slurm job.
ENVIRONMENT = ("SLURM_JOB_PARTITION",)
# The chart runs it as a DaemonSet: no other node can be measured from here.
PER_NODE = True
