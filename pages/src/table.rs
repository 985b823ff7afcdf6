//! Tables with heads for columns and rows.

use askama::Template;

/// What stands in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Short texts, which are not broken.
    Word,
    /// Numbers.
    Number,
    /// Texts of any length.
    Long,
}

impl Kind {
    const fn class(self) -> &'static str {
        match self {
            Self::Word => "word",
            Self::Number => "number",
            Self::Long => "long",
        }
    }
}

/// One cell.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    text: String,
    /// A further class of the style sheet.
    class: &'static str,
}

impl Cell {
    /// A text in the colour of this class of the style sheet.
    #[must_use]
    pub fn coloured(text: impl Into<String>, class: &'static str) -> Self {
        Self {
            text: text.into(),
            class,
        }
    }
}

impl<T: ToString> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::coloured(text.to_string(), "")
    }
}

/// A table as part of a page. The first cell of a row is its head. Without rows a line says so.
#[derive(Clone, Debug, Template)]
#[template(path = "table.html")]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// Names of the columns and what stands in them.
    pub columns: Vec<(&'static str, Kind)>,
    /// The rows.
    pub rows: Vec<Vec<Cell>>,
    /// What is said below it; nothing if empty.
    pub note: String,
}

impl Table {
    /// Class of the style sheet for the cells of this column.
    fn class(&self, column: &usize) -> &'static str {
        self.columns
            .get(*column)
            .map_or("", |(_, kind)| kind.class())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_without_rows_is_a_line() {
        let table = Table {
            caption: "Cases".to_owned(),
            columns: vec![("name", Kind::Word)],
            rows: Vec::new(),
            note: String::new(),
        };
        assert_eq!(table.to_string().trim(), "<p>Cases: none.</p>");
    }

    #[test]
    fn rows_have_heads_and_cells_are_escaped() {
        let table = Table {
            caption: "<caption>".to_owned(),
            columns: vec![("name", Kind::Word), ("count", Kind::Number)],
            rows: vec![vec!["<b>\"x\"".into(), Cell::coloured("7", "bad")]],
            note: String::new(),
        };
        let text = table.to_string();
        assert!(
            text.contains("<th scope=\"row\" class=\"word \">&#60;b&#62;&#34;x"),
            "{text}"
        );
        assert!(text.contains("<td class=\"number bad\">7</td>"), "{text}");
        assert!(
            text.contains("<th scope=\"col\" class=\"number\">count</th>"),
            "{text}"
        );
    }
}
