"""Caffe's messages."""
