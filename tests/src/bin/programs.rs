//! Plays the scenes of whole programs; `cargo xtask programs` is the usual way to call it.
#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser;
use rcoe_tests::report::Counts;
use rcoe_tests::scenes::{Row, Scene, Scenes, play};

/// Runs whole programs plainly and as replicas, and compares.
#[derive(Debug, Parser)]
struct Options {
    /// Numbers of replicas.
    #[arg(long, value_delimiter = ',', default_value = "1,2,3")]
    n: Vec<u32>,
    /// Only the quick subset, each with the default comparison, its plain run made once.
    #[arg(long)]
    quick: bool,
    /// Also write the results as Markdown into this file.
    #[arg(long)]
    markdown: Option<PathBuf>,
    /// Only print the Debian packages that are missing.
    #[arg(long)]
    packages: bool,
    /// Scenes; all that are not pending if none is named.
    names: Vec<String>,
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let mut scenes = Scenes::load()?;
    if options.quick {
        for scene in &mut scenes.all {
            scene.modes = vec!["args".to_owned()];
        }
    }
    let chosen = scenes.choose(&options.names, options.quick)?;
    if options.packages {
        let mut packages: Vec<&str> = chosen.iter().flat_map(|scene| scene.missing()).collect();
        packages.sort_unstable();
        packages.dedup();
        println!("{}", packages.join(" "));
        return Ok(ExitCode::SUCCESS);
    }
    let rows = play_all(&chosen, &options)?;
    if let Some(path) = &options.markdown {
        let text = markdown(&rows, &scenes, &options.n);
        std::fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    let counts = counts(&rows);
    println!(
        "\nprograms: {} passed, {} failed",
        counts.passed, counts.failed
    );
    Ok(if counts.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn play_all<'a>(chosen: &[&'a Scene], options: &Options) -> Result<Vec<(&'a Scene, Row)>> {
    // Servers that give up root must be able to get to their files.
    let root = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o755))
        .tempdir()?;
    let mut rows = Vec::new();
    for &scene in chosen {
        let row =
            play(scene, &options.n, !options.quick, root.path()).context(scene.name.clone())?;
        println!("{}", progress(scene, &row));
        rows.push((scene, row));
    }
    Ok(rows)
}

fn progress(scene: &Scene, row: &Row) -> String {
    let mut line = format!("{:<12} plain {:.1} s", scene.name, row.plain.as_secs_f64());
    if let Some(reason) = &row.rejected {
        let _ = write!(line, "\n    rejected: {reason}");
    }
    for cell in &row.cells {
        let (name, took) = (cell.mode.name(), cell.took.as_secs_f64());
        let _ = write!(line, ", {name} {took:.1} s");
        if let Some(difference) = &cell.difference {
            let _ = write!(line, "\n    {name} FAILED: {difference}\n   ");
        }
    }
    for remark in &row.remarks {
        let _ = write!(line, "\n    {remark}");
    }
    line
}

fn counts(rows: &[(&Scene, Row)]) -> Counts {
    let mut counts = Counts {
        passed: 0,
        failed: 0,
    };
    for (_, row) in rows {
        counts.failed += usize::from(row.rejected.is_some());
        for cell in &row.cells {
            counts.passed += usize::from(cell.difference.is_none());
            counts.failed += usize::from(cell.difference.is_some());
        }
    }
    counts
}

/// The table: a line for each scene and mode, then what rcoe remarked.
fn markdown(rows: &[(&Scene, Row)], scenes: &Scenes, replicas: &[u32]) -> String {
    let mut out = String::from("| scene | what is run | what is compared | mode | plain |");
    for n in replicas {
        let _ = write!(out, " n={n} |");
    }
    let _ = writeln!(
        out,
        "\n|---|---|---|---|---|{}",
        "---|".repeat(replicas.len())
    );
    for (scene, row) in rows {
        for mode in &scene.modes {
            let _ = write!(
                out,
                "| {} | {} | {} | {mode} | {:.1} s |",
                scene.name,
                scene.what.replace('|', "\\|"),
                scene.compared,
                row.plain.as_secs_f64()
            );
            for n in replicas {
                let _ = write!(out, " {} |", mark(row, mode, *n));
            }
            out.push('\n');
        }
    }
    out.push_str(&remarks(rows));
    out.push_str(&pending(scenes));
    out
}

fn mark(row: &Row, mode: &str, replicas: u32) -> String {
    let cell = row
        .cells
        .iter()
        .find(|cell| cell.mode.compare == mode && cell.mode.replicas == replicas);
    match cell {
        None => "rejected".to_owned(),
        Some(cell) if cell.difference.is_none() => format!("ok, {:.1} s", cell.took.as_secs_f64()),
        Some(_) => "**FAIL**".to_owned(),
    }
}

fn remarks(rows: &[(&Scene, Row)]) -> String {
    let mut out = String::new();
    for (scene, row) in rows {
        for remark in &row.remarks {
            let _ = write!(out, "\n* {}: `{remark}`", scene.name);
        }
        for cell in &row.cells {
            if let Some(difference) = &cell.difference {
                let name = cell.mode.name();
                let _ = write!(out, "\n* {} {name} failed: {difference}", scene.name);
            }
        }
    }
    if out.is_empty() {
        out
    } else {
        format!("\nWhat rcoe said, and what failed:\n{out}\n")
    }
}

fn pending(scenes: &Scenes) -> String {
    let mut out = String::new();
    for scene in &scenes.all {
        if let Some(reason) = &scene.pending {
            let _ = write!(out, "\n* {} ({}): {reason}", scene.name, scene.what);
        }
    }
    if out.is_empty() {
        out
    } else {
        format!("\nWritten, and pending:\n{out}\n")
    }
}
