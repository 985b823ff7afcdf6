//! Tells the user and the events file what happens.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use anstyle::{AnsiColor, Style};
use rcoe_supervisor::{Event, MetricsAddress, Observer, RunError, Stamped};

/// The observer of `rcoe run`.
#[derive(Debug)]
pub(crate) struct Reporter {
    start: Instant,
    events: Option<File>,
    /// Whether the user cannot know where metrics are.
    tell_address: bool,
}

impl Reporter {
    /// Opens the events file, if one is wanted.
    ///
    /// # Errors
    ///
    /// [`RunError::Setting`] names the file if it cannot be written.
    pub(crate) fn new(
        events: Option<&Path>,
        metrics: Option<&MetricsAddress>,
    ) -> Result<Self, RunError> {
        let open = |path: &Path| {
            File::create(path).map_err(|error| {
                RunError::Setting(format!(
                    "--events {}: cannot be written: {error}",
                    path.display()
                ))
            })
        };
        Ok(Self {
            start: Instant::now(),
            events: events.map(open).transpose()?,
            tell_address: matches!(metrics, Some(MetricsAddress::Tcp(it)) if it.port() == 0),
        })
    }

    fn write(&mut self, event: &Event) -> io::Result<()> {
        let Some(file) = &mut self.events else {
            return Ok(());
        };
        let stamped = Stamped {
            t: self.start.elapsed().as_secs_f64(),
            event,
        };
        let mut line = serde_json::to_vec(&stamped)?;
        line.push(b'\n');
        // One write a line, straight to the file: nothing is lost if rcoe is killed.
        file.write_all(&line)
    }
}

impl Observer for Reporter {
    fn event(&mut self, event: &Event) {
        if let Event::Metrics { address } = event
            && self.tell_address
        {
            say(AnsiColor::Green, "", &format!("metrics at {address}"));
        }
        if let Event::Debugger { address } = event {
            let text = format!("waiting for gdb: target remote {address}");
            say(AnsiColor::Green, "", &text);
        }
        if let Err(error) = self.write(event) {
            self.events = None;
            say(
                AnsiColor::Yellow,
                "warning: ",
                &format!("--events: writing failed, no more events: {error}"),
            );
        }
    }

    fn warning(&mut self, text: &str) {
        say(AnsiColor::Yellow, "warning: ", text);
    }

    fn error(&mut self, text: &str) {
        say(AnsiColor::Red, "", text);
    }
}

/// Prints one line to standard error, coloured only on a terminal.
pub(crate) fn say(color: AnsiColor, label: &str, text: &str) {
    let style = Style::new().fg_color(Some(color.into())).bold();
    let line = format!("{style}rcoe: {label}{style:#}{text}\n");
    let stderr = io::stderr();
    let plain = anstream::AutoStream::choice(&stderr) == anstream::ColorChoice::Never;
    let line = if plain {
        anstream::adapter::strip_str(&line).to_string()
    } else {
        line
    };
    // One write, so that it does not mix with what the program writes there. A closed standard
    // error leaves nobody to tell.
    let _ = stderr.lock().write_all(line.as_bytes());
}
