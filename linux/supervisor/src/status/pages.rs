//! What is answered to those who ask about a run.
//!
//! Contract: the supervisor is asked for a fresh snapshot at most once per [`FRESH`], however many
//! ask.

use std::time::Duration;

use rcoe_http::{Request, Response};

use super::board::Board;
use super::listen::Offer;
use super::prometheus;

/// Age up to which a snapshot is given out again.
pub(super) const FRESH: Duration = Duration::from_millis(200);

/// The page that was asked for, if it is on offer here.
pub(super) fn page(offer: Offer, request: &Request<'_>, board: &Board) -> Response {
    let path = request.path;
    let known = path == "/metrics" || (path == "/status" && offer == Offer::Everything);
    if !known {
        return Response::refusal(404);
    }
    let Some(snapshot) = board.ask() else {
        return Response::refusal(503);
    };
    if path == "/metrics" {
        return Response::new(prometheus::CONTENT_TYPE, prometheus::page(&snapshot));
    }
    match serde_json::to_string(&*snapshot) {
        Ok(text) => Response::new("application/json", text),
        Err(_) => Response::refusal(503),
    }
}
