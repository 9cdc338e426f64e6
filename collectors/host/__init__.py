"""CPUs, memory, disks and GPUs of the node this runs on."""

# What Slurm and the GPU runtime say of this process's share of the node.
ENVIRONMENT = (
    "SLURM_JOB_ID",
    "SLURM_JOB_PARTITION",
    "SLURM_NODEID",
    "SLURM_CPUS_PER_TASK",
    "SLURM_CPUS_ON_NODE",
    "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_MEM_PER_NODE",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_GPU",
    "SLURM_GPUS_ON_NODE",
    "SLURM_GPUS_PER_NODE",
    "SLURM_JOB_GPUS",
    "SLURM_STEP_GPUS",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
)
