//! Jobs that an operator looks at, in a folder of their own.

use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value;

use crate::launch::{self, Ended, Running, signal};
use crate::rcoe::{LIMIT, Scene, binary, until};

/// Prints a line and waits for a line.
const WAITER: &str = "#include <unistd.h>
int main(void) { char c; write(1, \"ready\\n\", 6); for (;;) pause(); }";

/// A scene in whose `run` folder jobs are found.
#[derive(Debug)]
pub struct Watched {
    /// The scene.
    pub scene: Scene,
    /// The program of its jobs.
    pub program: String,
}

impl Default for Watched {
    fn default() -> Self {
        Self::new()
    }
}

impl Watched {
    /// Makes it.
    ///
    /// # Panics
    /// If that does not work.
    #[must_use]
    pub fn new() -> Self {
        let scene = Scene::new();
        let program = scene.compile("waiter", WAITER, &[]);
        std::fs::create_dir(scene.path().join("run")).unwrap();
        Self { scene, program }
    }

    /// The folder.
    #[must_use]
    pub fn runtime(&self) -> PathBuf {
        self.scene.path().join("run")
    }

    /// Starts rcoe there.
    ///
    /// # Panics
    /// If that does not work.
    #[must_use]
    pub fn start(&self, arguments: &[&str]) -> Running {
        let runtime = format!("XDG_RUNTIME_DIR={}", self.runtime().display());
        let rcoe = binary().unwrap().display().to_string();
        let words = ["/usr/bin/env".to_owned(), runtime, rcoe].into_iter();
        let argv: Vec<String> = words
            .chain(arguments.iter().map(|&word| word.to_owned()))
            .collect();
        launch::start(&argv, self.scene.path(), None).unwrap()
    }

    /// Starts a job with these arguments of its program, and waits until it runs.
    ///
    /// # Panics
    /// If that does not work.
    #[must_use]
    pub fn start_job(&self, options: &[&str], arguments: &[&str]) -> Running {
        let running = self.start(&[&["run"], options, &["--", &self.program], arguments].concat());
        until("the program's line", || {
            let ready = running.stdout_so_far().unwrap().contains("ready");
            ready.then_some(())
        });
        running
    }

    /// What `rcoe top` shows.
    ///
    /// # Panics
    /// If that does not work.
    #[must_use]
    pub fn top(&self, arguments: &[&str]) -> launch::Outcome {
        let running = self.start(&[&["top"], arguments].concat());
        let outcome = running.finish(LIMIT).unwrap();
        assert_eq!(outcome.survivors, 0);
        outcome
    }

    /// What a job tells of itself.
    ///
    /// # Panics
    /// If that does not work.
    #[must_use]
    pub fn snapshot(&self, pid: u32) -> Value {
        let outcome = self.top(&[&pid.to_string(), "--json"]);
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        serde_json::from_slice(&outcome.stdout).unwrap()
    }

    /// Ends a job.
    ///
    /// # Panics
    /// If that does not work.
    pub fn end(running: Running) {
        signal(running.pid(), Signal::TERM).unwrap();
        let outcome = running.finish(LIMIT).unwrap();
        assert_eq!(outcome.ended, Ended::Signal(15), "{}", outcome.err());
        assert_eq!(outcome.survivors, 0);
    }
}

/// A whole HTTP answer.
///
/// # Panics
/// If that does not work.
#[must_use]
pub fn ask(mut stream: impl std::io::Read + std::io::Write, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
