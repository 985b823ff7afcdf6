//! Pictures of a page, for whoever changes its look.
//!
//! They are to be looked at, not compared. What pages hold is tested as text, where it is made, and
//! that a browser loads, runs and paints them in `tests/tests/browser.rs`.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::shell;

/// Pictures by name: the colours that the reader prefers, as Chromium counts them, and the window.
const SHOTS: [(&str, &str, &str); 3] = [
    ("light", "1", "1200,1600"),
    ("dark", "0", "1200,1600"),
    ("narrow", "0", "500,1600"),
];

/// What to take pictures of.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Address of a page, as `rcoe top --web` tells it, or a file of a report.
    page: String,
}

/// Takes the pictures; they lie in `target/shots`.
pub(crate) fn take(options: &Options) -> Result<bool> {
    let page = match std::path::absolute(&options.page) {
        Ok(path) if path.exists() => format!("file://{}", path.display()),
        _ => options.page.clone(),
    };
    let folder = shell::root().join("target/shots");
    std::fs::create_dir_all(&folder)?;
    let profile = tempfile::tempdir()?;
    for (name, scheme, window) in SHOTS {
        let picture = folder.join(format!("{name}.png"));
        let ended = Command::new("chromium")
            // Root runs it without a sandbox only; the pages are our own.
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
            ])
            // The page's own clock runs so long: enough for a few updates.
            .arg("--virtual-time-budget=4000")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
            .arg(format!("--window-size={window}"))
            .arg(format!("--screenshot={}", picture.display()))
            .arg(&page)
            .output()
            .context("chromium is needed for pictures: apt-get install chromium")?;
        ensure!(
            ended.status.success() && picture.exists(),
            "chromium: {}",
            ended.status
        );
        println!("{}", picture.display());
    }
    Ok(true)
}
