"""The method `trees`: spanning trees packed at the best rate that the network's cuts allow."""
