#!/usr/bin/env python3
"""Tests make_reference.py and wrap_docs.py on short texts."""
import unittest

from make_reference import anchors_of, narrow, read_help, read_messages
from wrap_docs import wrapped

HELP = '''tool --solver=FILE

Does a thing.

Flags:
  --solver  the solver, (a prototxt) (string, default "")

Scheme:
  --staleness  clocks, "0,2|1,3" (int32, default 2)

  --v=N  how much detail the log holds; --help, --version
  --help=compat  6 flags of other systems
Each flag may also be given as a variable, SHOAL_<FLAG>.
'''
PROTO = '''message A {
  // A section.
  optional int32 plain = 1 [default = 3];     // words
                                              // that go on
  repeated string many = 2;
  enum E { ONE = 0; TWO = 1; }
  // Before
  // the field.
  optional E choice = 1000;                   // behind it

  // A title that is the only comment.
  optional float alone = 4;
}
'''


class ReferenceTest(unittest.TestCase):
    def test_reads_the_usage_and_each_flag_of_a_help(self):
        usage, groups = read_help(HELP)
        self.assertEqual(usage, 'tool --solver=FILE\n\nDoes a thing.')
        self.assertEqual(groups, {'Flags': {'solver': ('the solver, (a prototxt)', 'string', '""')},
                                  'Scheme': {'staleness': ('clocks, "0,2|1,3"', 'int32', '2')}})

    def test_reads_fields_with_the_comments_that_belong_to_them(self):
        messages, enums = read_messages(PROTO)
        self.assertEqual(enums, {'E': ['ONE', 'TWO']})
        self.assertEqual(messages['A'], [['plain', '1', 'int32', '3', 'words that go on'],
                                         ['many', '2', 'string, repeated', '', ''],
                                         ['choice', '1000', 'E', '', 'Before the field. behind it'],
                                         ['alone', '4', 'float', '', 'A title that is the only comment.']])

    def test_keeps_commands_of_a_usage_apart_and_fills_the_rest(self):
        self.assertEqual(narrow('tool A\ntool B\n\nWords\nthat are filled.\n\n  a  kept\n  b  kept'),
                         'tool A\ntool B\n\nWords that are filled.\n\n  a  kept\n  b  kept')

    def test_names_the_places_that_links_lead_to(self):
        self.assertEqual(anchors_of('# A `title`: of 2,000\n```\n# no heading\n```\n## Where ...\n'), {'a-title-of-2000', 'where-'})


class WrapTest(unittest.TestCase):
    def test_wraps_paragraphs_and_items_and_nothing_else(self):
        word = 'word ' * 30
        text = f'# {word}\n\n{word}\n* {word}\n\n| {word} |\n\n    {word}\n\n```\n{word}\n```\n'
        lines = wrapped(text).splitlines()
        self.assertEqual([len(line) <= 120 for line in lines if line.startswith('word') or line.startswith(('* ', '  word'))],
                         [True, True, True, True, False])
        self.assertEqual(wrapped(wrapped(text)), wrapped(text))
        self.assertIn('| ' + word + ' |', lines)

    def test_breaks_no_code(self):
        self.assertIn('`a b c`', wrapped('x' * 117 + ' `a b c`\n'))

    def test_begins_no_line_with_what_would_be_an_item(self):
        self.assertEqual(wrapped('x' * 100 + ' ' + 'y' * 17 + ' 100. Next\n'), 'x' * 100 + '\n' + 'y' * 17 + ' 100. Next\n')


if __name__ == '__main__':
    unittest.main()
