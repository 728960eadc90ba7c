#!/usr/bin/env python3
"""Poseidon's kill_feature_extractor.py: does what kill_caffe.py does, and has its arguments."""
import runpy
from pathlib import Path

if __name__ == '__main__':
    runpy.run_path(str(Path(__file__).resolve().with_name('kill_caffe.py')), run_name='__main__')
