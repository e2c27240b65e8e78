"""What builds and checks the site: `make site`. mkdocs.yml has its settings."""
