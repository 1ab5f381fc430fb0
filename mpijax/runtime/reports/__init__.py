"""Records and reports of a rank: the flight recorder, the watchdog, the start of a job."""
