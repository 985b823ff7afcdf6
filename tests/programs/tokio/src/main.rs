//! What a server on tokio does, once: a runtime with several workers serves echo over TCP, waits
//! for timers, hands work to the blocking pool, runs a child and gets a signal.
//!
//! What it prints does not depend on who was first.

#![forbid(unsafe_code)]

use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, interval, sleep, timeout};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "multi_thread", worker_threads = 4)]
async fn main() -> Result<(), Failure> {
    echo().await?;
    timers().await;
    blocking().await?;
    channels().await;
    child().await?;
    signals().await?;
    tokio::fs::write("out/file", "written\n").await?;
    println!("{}", tokio::fs::read_to_string("out/file").await?.trim());
    Ok(())
}

/// Sixteen clients at once, each with lines that must come back.
async fn echo() -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                tokio::io::copy(&mut from, &mut to).await
            });
        }
    });
    let mut clients = JoinSet::new();
    for client in 0..16 {
        clients.spawn(async move {
            let stream = TcpStream::connect(address).await?;
            let (from, mut to) = stream.into_split();
            let mut lines = BufReader::new(from).lines();
            let mut bytes = 0;
            for round in 0..50 {
                let line = format!("{client} {round} {}", "x".repeat(round * 20));
                to.write_all(line.as_bytes()).await?;
                to.write_all(b"\n").await?;
                let answer = lines.next_line().await?.unwrap_or_default();
                assert_eq!(answer, line);
                bytes += answer.len();
            }
            to.shutdown().await?;
            assert_eq!(lines.next_line().await?, None);
            Ok::<_, std::io::Error>(bytes)
        });
    }
    let mut total = 0;
    while let Some(bytes) = clients.join_next().await {
        total += bytes??;
    }
    server.abort();
    println!("echoed {total} bytes");
    Ok(())
}

async fn timers() {
    let begun = Instant::now();
    let mut ticks = interval(Duration::from_millis(5));
    for _ in 0..5 {
        ticks.tick().await;
    }
    let late = timeout(Duration::from_millis(10), sleep(Duration::from_secs(3600))).await;
    println!(
        "timers {} {}",
        late.is_err(),
        begun.elapsed() >= Duration::from_millis(30)
    );
}

async fn blocking() -> Result<(), Failure> {
    let mut work = JoinSet::new();
    for part in 0..32_u64 {
        work.spawn(async move {
            spawn_blocking(move || {
                std::thread::sleep(Duration::from_millis(1));
                (0..20_000).fold(part, |hash, n| (hash ^ n).wrapping_mul(0x100_0000_01b3))
            })
            .await
        });
    }
    let mut sum = 0_u64;
    while let Some(part) = work.join_next().await {
        sum = sum.wrapping_add(part??);
    }
    println!("blocking {sum:x}");
    Ok(())
}

async fn channels() {
    let (sender, mut receiver) = mpsc::channel(4);
    for producer in 0..8_u64 {
        let sender = sender.clone();
        tokio::spawn(async move {
            for item in 0..100 {
                sender.send(producer * item).await.expect("a receiver");
            }
        });
    }
    drop(sender);
    let mut sum = 0;
    while let Some(item) = receiver.recv().await {
        sum += item;
    }
    let (sender, receiver) = oneshot::channel();
    tokio::spawn(async move { sender.send(sum) });
    println!("channels {:?}", receiver.await);
}

async fn child() -> Result<(), Failure> {
    let output = Command::new("sh")
        .args(["-c", "echo child; exit 3"])
        .output()
        .await?;
    println!(
        "{} {:?}",
        String::from_utf8(output.stdout)?.trim(),
        output.status.code()
    );
    let mut cat = Command::new("cat")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    let (mut input, mut output) = (
        cat.stdin.take().expect("piped"),
        cat.stdout.take().expect("piped"),
    );
    input.write_all(b"through a pipe").await?;
    drop(input);
    let mut text = String::new();
    output.read_to_string(&mut text).await?;
    println!("{text} {}", cat.wait().await?);
    Ok(())
}

async fn signals() -> Result<(), Failure> {
    let mut user = signal(SignalKind::user_defined1())?;
    let status = Command::new("sh")
        .args(["-c", &format!("kill -USR1 {}", std::process::id())])
        .status()
        .await?;
    user.recv().await;
    println!("signal {status}");
    Ok(())
}
