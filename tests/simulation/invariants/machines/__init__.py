"""What must hold of machines: what runs on them, what is booked, and which verdicts count."""
