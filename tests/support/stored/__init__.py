"""Values as the bucket stores them: single workloads and whole systems."""
