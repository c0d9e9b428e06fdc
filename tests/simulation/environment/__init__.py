"""What services meet: users, admins, check controllers, providers, machines and jobs."""
