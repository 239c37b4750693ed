// The join page: the command and its QR code, what the machine will do, and what it may be told.
"use strict";
(function () {
  var OPTIONS = [
    ["--hours 8", "leave after that many hours"], ["--until 07:30", "leave at that time of day"], ["--max-memory 4GB", "take no more memory"],
    ["--max-disk 10GB", "take no more disk"], ["--threads 2", "use that many cores"], ["--device cuda", "use the GPU"], ["--only train", "do that kind of work alone"],
  ];
  var main = document.getElementById("main"), invite = location.hash.slice(1);
  try { invite = decodeURIComponent(invite); } catch (malformed) { /* it is shown as it is */ }
  barn.fill(document.getElementById("top"), barn.el("h1", {}, "Join a run"));
  barn.ask("/data/join").then(function (run) {
    var command = "barnraise join '" + invite.replace(/'/g, "") + "'", code = barn.el("div", {});
    var what = ["It downloads the model (" + barn.bytes(run.model) + ") and the rows that it trains on"];
    if (run.local_steps) what.push("It trains for " + run.local_steps + " steps at a time, and sends about " + barn.bytes(run.payload) + " after each task");
    what.push("It dials out to the host alone: nothing can reach your machine");
    what.push("The host learns the machine's name, device, speed and link, and its updates. Nothing else on the machine is read");
    what.push("Ctrl-C ends it at any time: it submits its result and leaves. Its files are deleted when the run is over");
    document.title = "Join " + run.name;
    barn.fill(main,
      barn.card(run.name, barn.el("p", {}, "The run is " + run.state + ", at " + barn.percent(run.share) + " of its tokens, with " + barn.number(run.nodes) + " workers now."),
        invite ? [barn.el("h3", {}, "The command"), barn.el("pre", { tabindex: "0" }, "pip install barnraise\n" + command), code]
          : barn.el("p", { class: "warn" }, "This address has no invite in it. Ask the host for a link, or for the line that the command invite prints.")),
      barn.card("What your machine will do", barn.el("ul", {}, what.map(function (one) { return barn.el("li", {}, one + "."); }))),
      barn.card("What you may tell it", barn.table(["option", "effect"], OPTIONS.map(function (one) { return [barn.el("code", {}, one[0]), one[1]]; }), [], "Options")));
    if (invite) barn.ask("/qr?text=" + encodeURIComponent(location.href)).then(function (found) {
      barn.fill(code, barn.el("h3", {}, "This page for another machine"), barn.el("img", { class: "qr", alt: "The address of this page as a QR code", src: found.image }));
    }, function () {});
  }, function (error) { barn.fill(main, barn.el("p", { class: "note bad" }, error.message)); });
})();
