#!/usr/bin/env python3
"""Writes the lists that convert_annoset and get_image_size read, from the folders of VOC: for each name in ROOT/FOLDER/ImageSets/Main/SET.txt
a line "FOLDER/JPEGImages/NAME.jpg FOLDER/Annotations/NAME.xml". Lines of several FOLDERs come one after the other."""
import argparse
import random
import sys
from pathlib import Path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('root', type=Path, help='VOCdevkit')
    parser.add_argument('set', help='trainval, test')
    parser.add_argument('folders', nargs='+', help='VOC2007 VOC2012')
    parser.add_argument('--pictures', default='.jpg', help='ending of the pictures')
    parser.add_argument('--annotations', default='.xml', help='ending of the annotations')
    parser.add_argument('--shuffle', action='store_true', help='mix the lines')
    parser.add_argument('--seed', type=int, default=1)
    options = parser.parse_args()
    lines = []
    for folder in options.folders:
        names = options.root / folder / 'ImageSets/Main' / f'{options.set}.txt'
        if not names.is_file():
            sys.exit(f'create_list: there is no {names}')
        for name in (line.split()[0] for line in names.read_text().splitlines() if line.strip()):
            pair = f'{folder}/JPEGImages/{name}{options.pictures}', f'{folder}/Annotations/{name}{options.annotations}'
            for path in pair:
                if not (options.root / path).is_file():
                    sys.exit(f'create_list: {names} names {name}, but there is no {options.root / path}')
            lines.append(' '.join(pair) + '\n')
    if options.shuffle:
        random.Random(options.seed).shuffle(lines)
    sys.stdout.write(''.join(lines))


if __name__ == '__main__':
    main()
