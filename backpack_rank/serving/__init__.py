"""The HTTP server: rerank requests in, scores under any alpha out."""
