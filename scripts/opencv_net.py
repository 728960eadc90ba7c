#!/usr/bin/env python3
"""Times the forward pass of a deploy net on the CPU by OpenCV's dnn, and prints a line of JSON: the mean ms of a pass.
bench_peers.py starts it, in a Python that has cv2."""
import argparse
import json
import os
import statistics
import sys
import time

WARM_UPS = 3


def time_net(cv2, arguments):
    import numpy
    cv2.setNumThreads(arguments.threads)
    net = cv2.dnn.readNetFromCaffe(arguments.model, arguments.weights)
    image = numpy.random.RandomState(1).standard_normal([int(dim) for dim in arguments.shape.split(',')]).astype(numpy.float32)
    times = []
    for _ in range(WARM_UPS + arguments.iterations):
        net.setInput(image)
        start = time.perf_counter()
        output = net.forward()
        times.append(1000 * (time.perf_counter() - start))
    if not numpy.isfinite(output).all():
        sys.exit(f'{arguments.model}: not all outputs are finite')
    return {'ms': statistics.mean(times[WARM_UPS:])}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('model', nargs='?', help="what deploy_net wrote; without one: import cv2, print OpenCV's version and end")
    parser.add_argument('weights', nargs='?', help='a .caffemodel')
    parser.add_argument('--shape', default='1,3,224,224', help='of the input')
    parser.add_argument('--threads', type=int, default=1)
    parser.add_argument('--iterations', type=int, default=20)
    arguments = parser.parse_args()
    os.environ['OMP_NUM_THREADS'] = str(arguments.threads)
    try:
        import cv2
    except ImportError as error:
        sys.exit(f'no cv2: {error}')
    if not hasattr(cv2.dnn, 'readNetFromCaffe'):
        sys.exit(f"no cv2 that reads Caffe's nets: OpenCV {cv2.__version__} does not, 4 does")
    print(json.dumps(time_net(cv2, arguments) if arguments.model else {'cv2': cv2.__version__}))


if __name__ == '__main__':
    main()
