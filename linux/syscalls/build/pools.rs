//! What rows of the table have in common, written once and referred to by number.
//!
//! A number needs no relocation in an executable that lies at any address, as a pointer does.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Texts and sets of columns.
#[derive(Default)]
pub(crate) struct Pools {
    text: String,
    places: BTreeMap<String, usize>,
    columns: Vec<String>,
}

impl Pools {
    /// The value for these words.
    pub(crate) fn text(&mut self, words: &str) -> String {
        let start = *self.places.entry(words.into()).or_insert(self.text.len());
        if start == self.text.len() {
            self.text += words;
        }
        format!("Text::new({start}, {})", words.len())
    }

    /// The number of these columns.
    pub(crate) fn columns(&mut self, columns: String) -> usize {
        let known = self.columns.iter().position(|it| *it == columns);
        known.unwrap_or_else(|| {
            self.columns.push(columns);
            self.columns.len() - 1
        })
    }

    /// All of them as constants.
    pub(crate) fn render(&self) -> String {
        let mut out = format!("pub(crate) const TEXT: &str = {:?};\n", self.text);
        let columns = self.columns.join(",\n");
        let count = self.columns.len();
        let _ = writeln!(
            out,
            "pub(crate) static COLUMNS: [Facts; {count}] = [\n{columns}\n];"
        );
        out
    }
}
