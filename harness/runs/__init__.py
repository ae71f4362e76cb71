"""Run directories on disk, and the lease that keeps other workers out of one."""
