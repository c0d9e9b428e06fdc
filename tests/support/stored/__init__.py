"""Values as the bucket stores them: families, whole systems, and manifests with mistakes."""
