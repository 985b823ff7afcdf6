//! What happened when: lanes of signs.

use askama::Template;

/// What a sign stands for. Each has a shape of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// A fault: a cross.
    Fault,
    /// Something is gone: a ring.
    Gone,
    /// Something is back, or repaired: a full circle.
    Back,
    /// Something has moved: a triangle.
    Moved,
}

impl Sign {
    const fn class(self) -> &'static str {
        match self {
            Self::Fault => "fault",
            Self::Gone => "gone",
            Self::Back => "back",
            Self::Moved => "moved",
        }
    }

    /// How far below the top of its lane it stands, so that a fault and what follows from it within
    /// a moment can be told apart.
    const fn height(self) -> u32 {
        match self {
            Self::Fault => 8,
            Self::Gone | Self::Moved => 20,
            Self::Back => 32,
        }
    }

    /// Its shape around the origin, as a path of SVG.
    const fn path(self) -> &'static str {
        match self {
            Self::Fault => "M-5-5L5 5M5-5L-5 5",
            Self::Gone | Self::Back => "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",
            Self::Moved => "M-5 4L0-5L5 4z",
        }
    }
}

/// One sign.
#[derive(Clone, Debug)]
pub struct Mark {
    /// Where it stands, as a share of the whole time.
    pub at: f64,
    /// What it stands for.
    pub sign: Sign,
    /// What it means, in words.
    pub title: String,
}

impl Mark {
    fn percent(&self) -> String {
        format!("{:.2}%", 100.0 * self.at.clamp(0.0, 1.0))
    }
}

/// Signs that belong together.
#[derive(Clone, Debug)]
pub struct Lane {
    /// What they are about.
    pub name: String,
    /// The signs.
    pub marks: Vec<Mark>,
}

/// A time line as part of a page.
#[derive(Clone, Debug, Template)]
#[template(path = "timeline.html")]
pub struct Timeline {
    /// What it shows.
    pub title: String,
    /// Lanes from top to bottom.
    pub lanes: Vec<Lane>,
    /// What stands below its beginning.
    pub from: String,
    /// What stands below its end.
    pub to: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_stand_where_they_belong_and_titles_are_escaped() {
        let mark = |at, sign| Mark {
            at,
            sign,
            title: "<script>&\"'".to_owned(),
        };
        let line = Timeline {
            title: "a < b".to_owned(),
            lanes: vec![Lane {
                name: "replica 0".to_owned(),
                marks: vec![mark(0.25, Sign::Fault), mark(7.0, Sign::Back)],
            }],
            from: "start".to_owned(),
            to: "now".to_owned(),
        };
        let text = line.to_string();
        assert!(
            text.contains("x=\"25.00%\"") && text.contains("x=\"100.00%\""),
            "{text}"
        );
        assert!(
            text.contains("signs: 2") && text.contains("a &#60; b"),
            "{text}"
        );
        assert!(
            !text.contains("<script") && text.contains("&#60;script&#62;"),
            "{text}"
        );
    }
}
