"""The experiment of Coates et al. 2013: networks that grow with their machine."""
