//! Servers under measurement: how they are started, what they use, and how they end.
//!
//! Each listens at a port of its own on the loopback address and has a process group of its own,
//! by which everything that belongs to it is found and, if it comes to that, killed.
//!
//! Contract: no server outlives its [`Server`], nor this program, however that ends.
//!
//! Not covered: a port that somebody else takes between its choice and the server's start; the
//! server then ends, which is told.

use std::ffi::OsString;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::configuration::Configuration;
use crate::workshop::{Workshop, tool, words};

/// Longest wait for a server to answer or end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at whether it does.
const LOOK: Duration = Duration::from_millis(5);
/// Bytes of the page that nginx has.
const PAGE: usize = 1_400;

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// Without persistence.
    Redis,
    /// One process, which has one static page at `/`; settings are nginx's own but for the limit of
    /// requests a connection, and without a log.
    Nginx,
}

impl Service {
    /// The words that start it at this port; its files are put into `folder`.
    fn line(self, port: u16, folder: &Path) -> Result<Vec<OsString>> {
        let port = port.to_string();
        match self {
            Self::Redis => {
                let mut line = vec![tool("redis-server", "redis-server")?.into_os_string()];
                line.extend(words(&["--bind", "127.0.0.1", "--port", &port]));
                line.extend(words(&["--save", "", "--appendonly", "no"]));
                Ok(line)
            }
            Self::Nginx => {
                let nginx = tool("nginx", "nginx-light")?;
                std::fs::create_dir_all(folder)?;
                std::fs::write(folder.join("index.html"), "x".repeat(PAGE))?;
                std::fs::write(folder.join("nginx.conf"), nginx_settings(&port))?;
                let prefix = folder.as_os_str().to_owned();
                let mut line = vec![nginx.into_os_string(), "-p".into(), prefix];
                line.extend(words(&["-e", "errors", "-c", "nginx.conf"]));
                Ok(line)
            }
        }
    }
}

fn nginx_settings(port: &str) -> String {
    format!(
        "daemon off; master_process off; pid pid;
events {{ worker_connections 256; }}
http {{
  access_log off; keepalive_requests 1000000000;
  client_body_temp_path a; proxy_temp_path b; fastcgi_temp_path c; uwsgi_temp_path d;
  scgi_temp_path e;
  server {{ listen 127.0.0.1:{port}; root .; }}
}}"
    )
}

/// Waits for its end, but not longer than this.
///
/// # Errors
///
/// If it does not end.
pub(crate) fn wait(child: &mut Child, patience: Duration) -> Result<ExitStatus> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let waited = patience.as_secs();
        ensure!(Instant::now() < deadline, "no end after {waited} s");
        std::thread::sleep(LOOK);
    }
}

/// A running server, killed with everything in its process group if dropped before its end.
pub(crate) struct Server {
    child: Child,
    service: Service,
    port: u16,
    events: Option<PathBuf>,
}

impl Server {
    /// Starts it and waits until it answers; `index` tells servers of one folder apart.
    pub(crate) fn start(
        workshop: &Workshop,
        service: Service,
        configuration: Configuration,
        index: usize,
    ) -> Result<Self> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let folder = workshop.path(&format!("server-{index}"));
        let line = service.line(port, &folder)?;
        let events = workshop.path(&format!("events-{index}"));
        let events = (configuration.replicas > 0).then_some(events);
        let mut command = workshop.tethered(configuration, events.as_deref(), &line)?;
        let child = command.process_group(0).spawn();
        let mut server = Self {
            child: child.with_context(|| format!("cannot start {command:?}"))?,
            service,
            port,
            events,
        };
        server.until_it_answers()?;
        Ok(server)
    }

    fn until_it_answers(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended with {status} before it answered");
            }
            ensure!(Instant::now() < deadline, "the server does not answer");
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// What rcoe tells; only of a protected server.
    pub(crate) fn events(&self) -> &Path {
        self.events.as_deref().unwrap_or_else(|| Path::new(""))
    }

    /// Tells the server to end, and waits until it has.
    pub(crate) fn end(&mut self) -> Result<()> {
        match self.service {
            Service::Redis => {
                let number = self.port.to_string();
                let mut end = Command::new(tool("redis-cli", "redis-tools")?);
                end.args(["-p", &number, "shutdown", "nosave"])
                    .stdout(Stdio::null());
                end.status().context("cannot start redis-cli")?;
            }
            Service::Nginx => kill(self.pid()?, Signal::SIGTERM).context("cannot end nginx")?,
        }
        let status = wait(&mut self.child, PATIENCE).context("the server was told to end")?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }

    /// Ends the server; it must have run without a fault.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.end()?;
        let Some(events) = &self.events else {
            return Ok(());
        };
        let text = std::fs::read_to_string(events)?;
        let last = text.lines().last().context("no events")?;
        let last: serde_json::Value = serde_json::from_str(last)?;
        let counts = &last["counts"];
        let clean = counts["divergences"] == 0 && counts["downgrades"] == 0;
        ensure!(clean, "the replicas differed: {last}");
        Ok(())
    }

    fn pid(&self) -> Result<Pid> {
        Ok(Pid::from_raw(i32::try_from(self.child.id())?))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // There is nobody left to tell of a failure; a group that is gone is what is wanted.
            let _ = self.pid().map(|group| killpg(group, Signal::SIGKILL));
            let _ = self.child.wait();
        }
    }
}

/// CPU time used so far by all threads of the servers' process groups.
pub(crate) fn cpu_time(servers: &[Server]) -> Result<Duration> {
    let groups: Vec<u32> = servers.iter().map(|server| server.child.id()).collect();
    let mut sum = 0;
    for entry in std::fs::read_dir("/proc")? {
        let path = entry?.path();
        if group_of(&path).is_some_and(|group| groups.contains(&group)) {
            sum += nanoseconds(&path);
        }
    }
    ensure!(sum > 0, "no CPU time found");
    Ok(Duration::from_nanos(sum))
}

/// Process group of the process with this folder below `/proc`.
fn group_of(process: &Path) -> Option<u32> {
    let line = std::fs::read_to_string(process.join("stat")).ok()?;
    let fields = line.rsplit_once(')')?.1;
    fields.split_whitespace().nth(2)?.parse().ok()
}

/// CPU time of its threads; of those that end meanwhile nothing is counted.
fn nanoseconds(process: &Path) -> u64 {
    let tasks = std::fs::read_dir(process.join("task"))
        .into_iter()
        .flatten();
    let times = tasks.flatten().filter_map(|task| {
        let line = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        line.split(' ').next()?.parse::<u64>().ok()
    });
    times.sum()
}

#[cfg(test)]
mod tests {
    use super::cpu_time;

    #[test]
    fn no_server_has_no_cpu_time() {
        assert!(cpu_time(&[]).is_err());
    }
}
