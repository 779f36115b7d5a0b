"""Guests behind a stream of bytes: a supervisor that starts workers and relays for them."""
