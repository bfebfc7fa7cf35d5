/** Elements of documents: an array at the top level, whose elements are sealed one by one. */
import { forVersions, type Members, type Row, type Transcript, whole } from './transcript.ts';

const element = (index: number, text: string): Members => ({
  type: index === 0 ? 'Title' : 'NarrativeText',
  element_id: `${index}`.padStart(32, '0'),
  text,
  metadata: { filetype: 'application/pdf', languages: ['eng'], page_number: 1 },
});

const elements = (count: number): Members[] =>
  Array.from({ length: count }, (_, index) => element(index, `paragraph ${index} "ü" 🙂`));

const ROWS: readonly Row[] = [
  { name: 'the elements of one file', request: {}, response: whole(elements(3)) },
  { name: 'more elements than have one digit', request: {}, response: whole(elements(23)) },
  { name: 'the elements of two files', request: {}, response: whole([elements(2), elements(12)]) },
  { name: 'two files, of which one is empty', request: {}, response: whole([elements(1), []]) },
  {
    name: 'laid out over several lines',
    request: {},
    response: whole(`[\n  ${JSON.stringify(element(0, 'a'))},\n  ${JSON.stringify(element(1, 'b'))}\n]\n`),
  },
  // Of an array without elements nothing is sealed.
  { name: 'an empty file', request: {}, response: whole([]) },
];

export const UNSTRUCTURED: readonly Transcript[] = forVersions('unstructured', () => ROWS);
