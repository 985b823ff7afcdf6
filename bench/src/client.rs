//! The YCSB client: genuine packages from Maven Central, and a binding of our own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::workshop::Scale;
use crate::ycsb::throughput;

const JAVA: &str = "java: apt-get install default-jdk-headless";

/// How much the client does.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Records loaded.
    pub records: u64,
    /// Operations of each workload but E.
    pub operations: u64,
    /// Operations of E, most of which are scans of up to 100 records.
    pub scans: u64,
}

impl Work {
    /// For published figures, or to see that everything works.
    #[must_use]
    pub fn scaled(scale: Scale) -> Self {
        Self {
            records: 1_000,
            operations: 5_000 / scale.divide,
            scans: 250 / scale.divide,
        }
    }

    /// Operations of one workload.
    #[must_use]
    pub fn operations_of(self, workload: &str) -> u64 {
        match workload {
            "load" => self.records,
            "E" => self.scans,
            _ => self.operations,
        }
    }
}

/// The compiled client.
#[derive(Debug)]
pub struct Client {
    class_path: String,
}

impl Client {
    /// Fetches the packages and compiles the binding, beside this program; the packages are only
    /// fetched once.
    ///
    /// # Errors
    ///
    /// If there is no JDK or Maven, or the packages cannot be had.
    pub fn build() -> Result<Self> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("ycsb");
        let folder = std::env::current_exe()?.with_file_name("ycsb");
        let (jars, classes) = (folder.join("lib"), folder.join("classes"));
        if !jars.join("core-0.17.0.jar").exists() {
            let mut maven = Command::new("mvn");
            maven.args(["-q", "-B", "dependency:copy-dependencies", "-f"]);
            maven.arg(source.join("pom.xml"));
            maven.arg(format!("-DoutputDirectory={}", jars.display()));
            succeed(maven).context("Maven (apt-get install maven) cannot get the packages")?;
        }
        let packages = format!("{}/*", jars.display());
        let mut compiler = Command::new("javac");
        compiler.args(["-nowarn", "-cp", &packages, "-d"]);
        compiler.arg(&classes).arg(source.join("Redis.java"));
        succeed(compiler).context("javac (apt-get install default-jdk-headless)")?;
        Ok(Self {
            class_path: format!("{}:{packages}", classes.display()),
        })
    }

    /// Starts one workload, or `load`, on the server at this port.
    ///
    /// # Errors
    ///
    /// If there is no Java.
    pub fn start(&self, work: Work, workload: &str, port: u16) -> Result<Child> {
        self.command(work, workload, port)
            .stderr(Stdio::null())
            .spawn()
            .context(JAVA)
    }

    /// Starts one workload for so long at most; its standard error tells every second what was
    /// done.
    ///
    /// # Errors
    ///
    /// If there is no Java.
    pub fn start_timed(
        &self,
        work: Work,
        workload: &str,
        port: u16,
        length: Duration,
    ) -> Result<Child> {
        let limit = format!("maxexecutiontime={}", length.as_secs().max(1));
        self.command(work, workload, port)
            .args(["-s", "-p", "status.interval=1", "-p", &limit])
            .stderr(Stdio::piped())
            .spawn()
            .context(JAVA)
    }

    fn command(&self, work: Work, workload: &str, port: u16) -> Command {
        let task = if workload == "load" { "-load" } else { "-t" };
        let mut java = Command::new("java");
        java.args(["-XX:+UseSerialGC", "-cp", &self.class_path]);
        java.args([
            "site.ycsb.Client",
            task,
            "-db",
            "rcoe.Redis",
            "-threads",
            "8",
        ]);
        let numbers = [
            ("recordcount", work.records),
            ("operationcount", work.operations_of(workload)),
            ("redis.port", port.into()),
        ];
        let numbers = numbers.map(|(name, value)| format!("{name}={value}"));
        let fixed = [
            "workload=site.ycsb.workloads.CoreWorkload",
            "dataintegrity=true",
        ];
        let fixed = fixed.iter().chain(properties(workload));
        for property in numbers.iter().map(String::as_str).chain(fixed.copied()) {
            java.args(["-p", property]);
        }
        java.stdin(Stdio::null()).stdout(Stdio::piped());
        java
    }

    /// Waits for the end; tells the throughput.
    ///
    /// # Errors
    ///
    /// If anything went wrong.
    pub fn finish(&self, client: Child) -> Result<f64> {
        let output = client.wait_with_output()?;
        ensure!(output.status.success(), "YCSB ended with {}", output.status);
        throughput(&String::from_utf8_lossy(&output.stdout))
    }
}

/// What makes a workload; YCSB's own definitions, which come as files only with its sources.
fn properties(workload: &str) -> &'static [&'static str] {
    match workload {
        "B" => &[
            "readproportion=0.95",
            "updateproportion=0.05",
            "requestdistribution=zipfian",
        ],
        "C" => &[
            "readproportion=1.0",
            "updateproportion=0",
            "requestdistribution=zipfian",
        ],
        "D" => &[
            "readproportion=0.95",
            "updateproportion=0",
            "insertproportion=0.05",
            "requestdistribution=latest",
        ],
        "E" => &[
            "readproportion=0",
            "updateproportion=0",
            "scanproportion=0.95",
            "insertproportion=0.05",
            "requestdistribution=zipfian",
            "maxscanlength=100",
        ],
        "F" => &[
            "readproportion=0.5",
            "updateproportion=0",
            "readmodifywriteproportion=0.5",
            "requestdistribution=zipfian",
        ],
        // Loading goes by the same properties.
        _ => &[
            "readproportion=0.5",
            "updateproportion=0.5",
            "requestdistribution=zipfian",
        ],
    }
}

fn succeed(mut command: Command) -> Result<()> {
    let program = PathBuf::from(command.get_program());
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    ensure!(output.status.success(), "{}: {text}", program.display());
    Ok(())
}
