#!/usr/bin/env python3
"""Makes the notebooks of examples/notebooks of the scripts beside them, and runs them once, so that they show what they print and draw.

  scripts/render_notebooks.py [NAME...]     writes NAME.ipynb of NAME.py, of all scripts with cells if no name is given; needs nbformat,
                                            nbclient, ipykernel, matplotlib and the package shoal
  scripts/render_notebooks.py --check       names each notebook whose cells are not its script's, or that is larger than 200 kB or shows an
                                            error, and each that is missing; needs nothing; ends with 1 if there is any

A script's cells begin with a line `# %%`, or `# %% [markdown]` for one of text, whose lines are comments.
"""
import argparse
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / 'examples/notebooks'
MARK = '# %%'
LARGEST = 200_000   # bytes of a notebook


def cells_of(text):
    """[(kind, source)] of a script: kind is code or markdown."""
    cells = []
    for part in re.split(r'(?m)^(?=# %%)', text):
        if not part.startswith(MARK):
            continue
        mark, _, body = part.partition('\n')
        body = body.strip('\n')
        if mark == MARK:
            cells.append(('code', body))
        elif mark == MARK + ' [markdown]':
            cells.append(('markdown', '\n'.join(re.sub(r'^# ?', '', line) for line in body.splitlines())))
        else:
            raise ValueError(f"a cell begins with '{mark}', which is neither '{MARK}' nor '{MARK} [markdown]'")
    return cells


def scripts():
    return [path for path in sorted(FOLDER.glob('*.py')) if path.read_text().startswith(MARK)]


def render(path):
    import nbclient
    import nbformat.v4
    make = {'code': nbformat.v4.new_code_cell, 'markdown': nbformat.v4.new_markdown_cell}
    book = nbformat.v4.new_notebook(cells=[make[kind](source) for kind, source in cells_of(path.read_text())])
    for number, cell in enumerate(book.cells):
        cell['id'] = f'cell-{number}'   # the same each time
    nbclient.NotebookClient(book, timeout=600, kernel_name='python3', resources={'metadata': {'path': str(FOLDER)}}).execute()
    for cell in book.cells:
        cell.metadata.pop('execution', None)   # times
        if cell.cell_type == 'code':
            # The log is the machine's.
            cell.outputs = [output for output in cell.outputs if output.get('name') != 'stderr']
    book.metadata = {'kernelspec': {'display_name': 'Python 3', 'language': 'python', 'name': 'python3'},
                     'language_info': {'name': 'python'}}
    path.with_suffix('.ipynb').write_text(json.dumps(book, indent=1, sort_keys=True, ensure_ascii=False) + '\n')
    print(f'{path.with_suffix(".ipynb").relative_to(ROOT)}: {path.with_suffix(".ipynb").stat().st_size} bytes')


def complaints(path):
    """What is wrong with the notebook of a script."""
    book_path = path.with_suffix('.ipynb')
    if not book_path.exists():
        return [f'{book_path.name} is missing; scripts/render_notebooks.py makes it']
    book = json.loads(book_path.read_text())
    found = []
    sources = [(cell['cell_type'], ''.join(cell['source'])) for cell in book['cells']]
    if sources != cells_of(path.read_text()):
        found.append(f'the cells of {book_path.name} are not those of {path.name}; run scripts/render_notebooks.py {path.stem}')
    if any(output['output_type'] == 'error' for cell in book['cells'] for output in cell.get('outputs', [])):
        found.append(f'{book_path.name} shows an error')
    if not any(cell.get('outputs') for cell in book['cells']):
        found.append(f'{book_path.name} shows nothing; it has not been run')
    if book_path.stat().st_size > LARGEST:
        found.append(f'{book_path.name} has {book_path.stat().st_size} bytes, more than {LARGEST}')
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('names', nargs='*')
    parser.add_argument('--check', action='store_true')
    arguments = parser.parse_args()
    if not arguments.check:
        for path in [FOLDER / f'{name}.py' for name in arguments.names] or scripts():
            render(path)
        return 0
    found = [line for path in scripts() for line in complaints(path)]
    print('\n'.join(found) if found else f'{len(scripts())} notebooks are as their scripts say')
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
