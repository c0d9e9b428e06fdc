"""What a session keeps of earlier answers, for the pages that it shows again."""
