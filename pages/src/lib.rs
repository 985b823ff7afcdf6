//! What rcoe's pages have in common: the live one of `rcoe top --web` and reports of campaigns.
//!
//! 1. A page stands alone: nothing is loaded from anywhere else, and its policy says so.
//! 2. Whatever text comes from outside is escaped by the templates, which know no exception but for
//!    parts that are templates themselves.
//! 3. Colour never says anything alone, and all that is drawn stands in a table as well.
//!
//! Not covered: what a page shows; that is up to who has the figures.
#![forbid(unsafe_code)]

mod chart;
mod table;
mod timeline;
mod words;

pub use chart::{Bin, Bins, Curve};
pub use table::{Cell, Kind, Table};
pub use timeline::{Lane, Mark, Sign, Timeline};
pub use words::{date, duration, shortened};

/// The style sheet of all pages, light and dark.
pub const STYLE: &str = include_str!("../assets/style.css");
