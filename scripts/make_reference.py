#!/usr/bin/env python3
"""Writes the pages of docs/reference that say what the code says: flags.md, of the tools' --help=all, and solver.md, of the schemas.

  scripts/make_reference.py [BUILD]           writes them anew; BUILD is build/release
  scripts/make_reference.py --check [BUILD]   writes nothing: names each page that is not what it would write, a version of CHANGELOG.md or
                                              of the tools that is not include/shoal/base/version.h's, exit codes that their page lacks,
                                              links of documents that lead nowhere, and prose that wrap_docs.py would wrap; ends with 1
                                              if there is any
"""
import argparse
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

from wrap_docs import wrapped

ROOT = Path(__file__).resolve().parent.parent
FLAG = re.compile(r'  --(\w+)  (.*) \((\w+), default (.*)\)$')
COLUMNS = ('flag', 'type', 'default', 'meaning')
FIELD = re.compile(r'(optional|repeated) ([\w.]+) (\w+) = (\d+)\s*(?:\[default = ([^]]*)\])?;')
MESSAGES = {  # of solver.proto, in the order of the page: the title and what stands under it
    'SolverParameter': ('The solver', 'The fields of a solver file.'),
    'SchemeParameter': ('scheme', 'The fields of `scheme { }`: [choosing a scheme](../choosing-a-scheme.md). Without a default here the '
                                  'scheme has its own. Several `scheme { }` are phases.'),
    'Weighting': ('scheme: weighting', 'The fields of `scheme { weighting { } }`.'),
    'ExchangeParameter': ('exchange', 'The fields of `exchange { }`: [choosing an exchange](../choosing-an-exchange.md).'),
    'Override': ('exchange: layer', 'The fields of `exchange { layer { } }`.'),
    'BatchScaling': ('batch_scaling',
                     'The fields of `batch_scaling { }`: [large batches](../choosing-an-exchange.md#large-batches).')}


def cell(text):
    return text.replace('|', '\\|').replace('<', '&lt;').strip()


def table(columns, rows):
    lines = ['| ' + ' | '.join(columns) + ' |', '|' + '---|' * len(columns)]
    return lines + ['| ' + ' | '.join(row) + ' |' for row in rows]


# --- flags.md

def run(tool, flag):
    environment = {name: value for name, value in os.environ.items() if not name.startswith('SHOAL_')}
    return subprocess.run([str(tool), flag], capture_output=True, text=True, check=True, env=environment).stdout


def read_help(text):
    """The usage of a tool, and its flags by group: {title: {name: (meaning, type, default)}}."""
    usage, groups, title = [], {}, None
    for line in text.splitlines():
        flag = FLAG.match(line)
        if flag and title:
            groups[title][flag[1]] = flag.groups()[1:]
        elif line.startswith(('  --v=N', '  --help=', 'Each flag may also')):
            title = None
        elif re.fullmatch(r'\S.*:', line) and usage and usage[-1] == '':
            title = line[:-1]
            groups[title] = {}
        else:
            usage.append(line)
    return '\n'.join(usage).strip(), groups


def narrow(usage):
    """The usage with lines of at most 120 columns; the commands, which come first, and indented lines stay lines of their own."""
    paragraphs = []
    for paragraph in usage.split('\n\n'):
        lines = paragraph.splitlines()
        if paragraphs and not any(line.startswith(' ') for line in lines):
            lines = [' '.join(lines)]
        paragraphs.append('\n'.join(textwrap.fill(line, 120, subsequent_indent='    ' * (not paragraphs)) for line in lines))
    return '\n\n'.join(paragraphs)


def flag_rows(flags):
    return [(f'`--{name}`', kind, '' if default == '""' else f'`{default}`', cell(meaning))
            for name, (meaning, kind, default) in sorted(flags.items())]


def flags_page(tools):
    names = sorted(path.stem for path in (ROOT / 'tools').glob('*.cpp'))
    helps = {name: read_help(run(tools / name, '--help=all')) for name in names}
    shared, takers, others = {}, {}, {}
    for name, (_, groups) in helps.items():
        for title, flags in groups.items():
            if title != 'Flags':
                shared.setdefault(title, {}).update(flags)
                takers.setdefault(title, []).append(name)
        listed = {flag for flags in groups.values() for flag in flags}
        for flags in read_help(run(tools / name, '--help=compat'))[1].values():
            others.update({flag: words for flag, words in flags.items() if flag not in listed})
    lines = ['# Flags', '', 'For those who type commands: every flag of every tool.', '',
             'This page is made from the tools\' `--help=all` by `scripts/make_reference.py`.', '',
             'A flag takes one dash or two, `-` or `_` within its name, and its value behind `=` or as the next word. `--flag` alone sets a',
             'bool, and `--noflag` clears it. Every flag `--x_y` is also the variable `SHOAL_X_Y`; the command line wins.',
             'Each tool also has `--help`, `--version` and `--v=N`, how much detail the log holds.', '', '## Tools', '']
    for name, (usage, groups) in helps.items():
        lines += [f'### {name}', '', '```', narrow(usage), '```', '']
        if 'Flags' in groups:
            lines += table(COLUMNS, flag_rows(groups['Flags'])) + ['']
        if more := [f'"{title.partition(" (")[0]}"' for title in groups if title != 'Flags']:
            lines += [f'Also the flags {", ".join(more)} below.', '']
    lines += ['## Flags of several tools', '']
    for title, flags in shared.items():
        lines += [f'### {title.partition(" (")[0]}', '', 'Of ' + ', '.join(f'`{name}`' for name in takers[title]) + '.', '']
        lines += table(COLUMNS, flag_rows(flags)) + ['']
    if others:
        lines += ['## Flags of other systems', '', 'Old command lines keep working by these: [coming from](../coming-from.md).', '']
        lines += table(COLUMNS, flag_rows(others))
    return wrapped('\n'.join(lines).rstrip() + '\n')


# --- solver.md

def read_messages(text):
    """The fields of each message, [name, number, type, default, meaning], and the names of each enum's values. A field's comment stands
    behind it, and goes on below; one on the lines before it belongs to it too, unless a blank line makes that the title of a section."""
    messages, enums, stack, before, titled = {}, {}, [], [], True
    for line in text.splitlines():
        code, _, comment = (part.strip() for part in line.partition('//'))
        fields = messages.get(stack[-1], []) if stack else []
        if field := FIELD.match(code):
            repeat, kind, name, number, default = field.groups()
            words = before + [comment] if not (titled and comment) else [comment]
            fields.append([name, number, kind + ', repeated' * (repeat == 'repeated'), default or '', ' '.join(words).strip()])
        elif enum := re.match(r'enum (\w+) \{(.*)\}', code):
            enums[enum[1]] = re.findall(r'(\w+) = \d+', enum[2])
        elif message := re.match(r'message (\w+) \{', code):
            stack.append(message[1])
            messages[message[1]] = []
        elif code == '}':
            stack.pop()
        elif comment and line.index('//') > 30:
            fields[-1][-1] += ' ' + comment
        if comment and not code and line.index('//') <= 30:
            before.append(comment)
        elif not code.startswith('enum'):
            before, titled = [], not code or code.endswith('{')
    return messages, enums


def solver_page():
    messages, enums = read_messages((ROOT / 'src/shoal/proto/solver.proto').read_text())
    lines = ['# Fields of a solver', '', 'For those who write `solver.prototxt`: every field, its type, its default and its meaning.', '',
             'This page is made from `src/shoal/proto/solver.proto` by `scripts/make_reference.py`.', '',
             'Fields with a number below 1000 are BVLC Caffe\'s. Shoal\'s own fields start at 1000 in the solver, are optional, and',
             'change nothing where they are not given. `train --set=\'base_lr: 0.1\'` gives a field on the command line.', '',
             'A solver names its train net by exactly one of `net`, `net_param`, `train_net` and `train_net_param`. Its test nets are all',
             '`test_net_param`, then all `test_net`, then `net` or `net_param` for the values of `test_iter` that are left.', '']
    for message, (title, words) in MESSAGES.items():
        rows = []
        for name, number, kind, default, meaning in sorted(messages[message]):
            base = kind.partition(',')[0]
            shown = ', '.join(enums[base]) if base in enums else kind
            rows.append((f'`{name}`', number, cell(shown), f'`{default}`' if default not in ('', '""') else '', cell(meaning)))
        lines += [f'## {title}', '', words, ''] + table(('field', 'number', 'type', 'default', 'meaning'), rows) + ['']
    return wrapped('\n'.join(lines).rstrip() + '\n')


# --- what is checked besides

def wrong_versions(tools):
    version = re.search(r'kVersion = "(.*)"', (ROOT / 'include/shoal/base/version.h').read_text())[1]
    newest = re.search(r'^## (\S+)', (ROOT / 'CHANGELOG.md').read_text(), re.MULTILINE)[1]
    if newest != version:
        yield f'CHANGELOG.md: its newest heading is {newest}, and the version is {version}'
    built = run(tools / 'train', '--version').splitlines()[0]
    if built != f'shoal {version}':
        yield f'{tools}/train says "{built}", and the version is {version}'


def missing_codes():
    listed = re.findall(r'^\| (\d+) \|', (ROOT / 'docs/reference/exit-codes.md').read_text(), re.MULTILINE)
    codes = re.search(r'enum class Code \{(.*?)\};', (ROOT / 'include/shoal/base/error.h').read_text(), re.DOTALL)[1]
    for name, number in re.findall(r'(k\w+) = (\d+)', codes):
        if number not in listed:
            yield f'docs/reference/exit-codes.md lacks {number}, {name}'


def anchors_of(text):
    """The places in a page that a link can name: as GitHub makes them of headings."""
    headings = re.findall(r'^#+ (.*)', re.sub(r'^```.*?^```', '', text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r'[^\w\- ]', '', heading.lower()).replace(' ', '-') for heading in headings}


def pages():
    listed = subprocess.run(['git', '-C', str(ROOT), 'ls-files', '-co', '--exclude-standard', '*.md'], capture_output=True, text=True)
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def broken_links():
    for page in pages():
        name, text = page.relative_to(ROOT), page.read_text()
        for target in re.findall(r'\]\(([^)\s]+)\)', re.sub(r'^```.*?^```|`[^`\n]*`', '', text, flags=re.DOTALL | re.MULTILINE)):
            path, _, anchor = target.partition('#')
            there = (page.parent / path).resolve() if path else page
            if re.match(r'\w+:', target):
                continue
            if not there.exists():
                yield f'{name}: a link to {target}, which is not there'
            elif anchor and there.suffix == '.md' and anchor not in anchors_of(there.read_text()):
                yield f'{name}: a link to {target}, and {there.name} has no such heading'


def long_lines():
    for page in pages():
        name = str(page.relative_to(ROOT))
        if (name.startswith('docs/') or '/' not in name) and wrapped(page.read_text()) != page.read_text():
            yield f'{name}: run scripts/wrap_docs.py {name}'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--check', action='store_true', help='write nothing, and say what is stale')
    parser.add_argument('build', nargs='?', default='build/release', help='the folder of the build; default: build/release')
    arguments = parser.parse_args()
    tools = (ROOT / arguments.build).resolve() / 'tools'
    if not (tools / 'train').exists():
        sys.exit(f'{tools} has no tools: run make first')
    wrong = []
    for name, text in (('flags.md', flags_page(tools)), ('solver.md', solver_page())):
        page = ROOT / 'docs/reference' / name
        if not arguments.check:
            page.write_text(text)
        elif not page.exists() or page.read_text() != text:
            wrong.append(f'docs/reference/{name} is stale: run scripts/make_reference.py')
    if arguments.check:
        wrong += [*wrong_versions(tools), *missing_codes(), *broken_links(), *long_lines()]
    print('\n'.join(wrong) if wrong else 'reference pages: current' if arguments.check else 'reference pages: written')
    sys.exit(1 if wrong else 0)


if __name__ == '__main__':
    main()
