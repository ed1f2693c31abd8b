"""The first half of curation: documents from anywhere to clean, deduplicated, decontaminated partitions, a reason for every drop."""
