"""CPUs, memory, disks and GPUs of the node this runs on."""

# Where a collector runs inside a Slurm job.
ENVIRONMENT = ("SLURM_JOB_PARTITION",)
PER_NODE = True
