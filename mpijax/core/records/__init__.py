"""Values as plain data, and Jaxprs as bytes."""
