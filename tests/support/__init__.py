"""What several tests share: conversations, servers, providers and programs to run against."""
