//! Throughput over time with the faults marked.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::{Outcome, What};

/// Width and height in pixels.
const SIZE: (u32, u32) = (1200, 420);

/// Writes the plot as SVG.
///
/// # Errors
///
/// If the file cannot be written.
pub fn draw(path: &Path, outcome: &Outcome) -> Result<()> {
    paint(path, outcome).map_err(|error| anyhow!("{}: {error}", path.display()))
}

fn paint(path: &Path, outcome: &Outcome) -> Result<(), Box<dyn std::error::Error>> {
    let seconds = &outcome.seconds;
    let end = seconds.last().map_or(1.0, |second| second.at);
    let top = seconds
        .iter()
        .map(|second| second.operations)
        .fold(1.0, f64::max)
        * 1.05;
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(caption(outcome), ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..end, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_desc("seconds")
        .y_desc("YCSB operations a second")
        .draw()?;
    for (what, colour) in [(What::Removed, RED), (What::Takeover, MAGENTA)] {
        let marks = outcome.events.iter().filter(|event| event.what == what);
        chart
            .draw_series(
                marks.map(|event| PathElement::new([(event.at, 0.0), (event.at, top)], colour)),
            )?
            .label(label(what))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
    }
    let flips = outcome.flips.iter().map(|flip| (flip.at, top * 0.98));
    chart
        .draw_series(flips.map(|at| TriangleMarker::new(at, 3, BLACK)))?
        .label("bit flipped")
        .legend(|(x, y)| TriangleMarker::new((x + 8, y), 4, BLACK));
    let line = seconds.iter().map(|second| (second.at, second.operations));
    chart.draw_series(LineSeries::new(line, &BLUE))?;
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    area.present()?;
    Ok(())
}

const fn label(what: What) -> &'static str {
    match what {
        What::Takeover => "the primary was removed",
        _ => "a follower was removed",
    }
}

fn caption(outcome: &Outcome) -> String {
    format!(
        "Redis, YCSB-B, {} replicas: {} bits flipped, {} replicas removed, {} back",
        outcome.wanted,
        outcome.flips.len(),
        outcome.count(What::Removed),
        outcome.count(What::Back),
    )
}
