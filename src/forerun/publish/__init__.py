"""What leaves the lab: weights, model card, data order, release bundle, issue text."""
