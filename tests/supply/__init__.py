"""What Rerail is made of: known flaws and licences of what is locked, and a wheel that can be built again."""
