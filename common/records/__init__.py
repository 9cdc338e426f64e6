"""Files of records: found, read line by line, and read again for the past."""
