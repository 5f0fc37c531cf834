"""An interrupt, a lack of memory or an error between any two lines leaves nothing behind that a later call can see."""
