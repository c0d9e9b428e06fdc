"""What tests share: servers, services and requests."""
