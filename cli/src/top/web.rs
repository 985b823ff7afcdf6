//! `rcoe top --web`: the view as a page for browsers.
//!
//! A thread looks at the jobs each second and keeps the page that shows them; this one gives it
//! out, however many ask. Browsers replace the view each second by a script of the page, or load
//! the page again where scripts are off.
//!
//! Contract: nothing can be changed here, and no path leads to a file. It is served to this machine
//! only, unless the user says otherwise, and only to those who name it by an address: the pages of
//! other sites cannot have it by a name of their own that leads here.

mod cores;
mod host;
mod looker;
mod view;

use std::io::{self, Write};
use std::path::PathBuf;
use std::thread;

use anstyle::AnsiColor;
use anyhow::{Context as _, bail};
use rcoe_http::{Door, Request, Response};
use rcoe_pages::STYLE;

use crate::args::TopArgs;
use crate::reporter;

pub(crate) use host::WebAddress;
use looker::{Looker, Shown};

const SCRIPT: &str = include_str!("../../assets/top.js");
const HTML: &str = "text/html; charset=utf-8";

/// Nothing from elsewhere, nothing within other pages, and nothing about this page to others.
const HEADERS: &[(&str, &str)] = &[
    (
        "Content-Security-Policy",
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
];

/// Serves until the user interrupts.
///
/// # Errors
///
/// If the address cannot be had or may not, or there is nothing to look at.
pub(super) fn serve(address: WebAddress, args: &TopArgs, folder: PathBuf) -> anyhow::Result<()> {
    let WebAddress(address) = address;
    if !address.ip().is_loopback() {
        if !args.web_public {
            bail!(
                "--web {address}: others could read the page there, without a password; add \
                 --web-public if they may, or use 127.0.0.1 and a tunnel (see --help)"
            );
        }
        let text = format!("whoever reaches {address} can read the page, without a password");
        reporter::say(AnsiColor::Yellow, "warning: ", &text);
    }
    let door = Door::tcp(address).with_context(|| format!("--web {address}"))?;
    let bound = door.address().context("--web")?;
    let (looker, shown) = Looker::new(folder, args.pid)?;
    thread::Builder::new()
        .name("looker".into())
        .spawn(move || looker.look_on())
        .context("--web: starting a thread")?;
    writeln!(io::stdout(), "http://{bound}/ (interrupt to end)").context("telling the address")?;
    rcoe_http::serve(&[door], |_, request| {
        if host::is_ours(request.host, bound.ip()) {
            page(request, &shown)
        } else {
            Response::refusal(403)
        }
    });
    bail!("--web: the host does not let us wait for clients any more")
}

fn page(request: &Request<'_>, shown: &Shown) -> Response {
    let response = match request.path {
        "/" => Response::new(HTML, shown.page()),
        "/view" => Response::new(HTML, shown.view()),
        "/jobs.json" => Response::new("application/json", shown.json()),
        "/style.css" => Response::new("text/css; charset=utf-8", STYLE),
        "/top.js" => Response::new("text/javascript; charset=utf-8", SCRIPT),
        _ => return Response::refusal(404),
    };
    response.with(HEADERS)
}
