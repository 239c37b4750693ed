// The page of a run: its head, the choice of a view, and the state of the connection.
"use strict";
(function () {
  var main = document.getElementById("main"), top = document.getElementById("top"), nav = document.getElementById("views");
  var name = barn.el("h1", {}, "barnraise"), state = barn.el("span", { class: "state soft", role: "status" }, "waiting"), actions = barn.el("span", {}), link = barn.el("span", { class: "link", role: "status" }), note = barn.el("div", {});
  var end = null, run = null, last = "";
  barn.fill(top, name, state, actions, link);
  main.before(note);

  // Show the run's name and state, in one word.
  barn.head = function (found) {
    run = found;
    var good = found.state === "training" || found.state === "finished", told = [found.name, found.state].join();
    if (told === last) return;
    last = told;
    name.textContent = found.name + (found.simulated ? " (simulated)" : "");
    document.title = found.state + ": " + found.name;
    state.textContent = found.state;
    state.className = "state " + (good ? "good" : found.state === "interrupted" ? "bad" : "warn");
    barn.fill(actions, barn.hostActions(found));
  };
  var WORDS = { waiting: "waiting for the first figures", live: "live", stale: "connection lost", broken: "the run cannot be read", still: "report" };
  function connection() {
    var now = barn.connection;
    link.textContent = WORDS[now.state];
    link.className = "link " + ({ stale: "warn", broken: "bad", live: "good" }[now.state] || "");
    var ago = "since " + new Date(now.since).toLocaleTimeString();
    barn.fill(note, now.state === "stale" ? barn.el("p", { class: "note warn" }, "The connection is lost " + ago + ": figures are as they were then. The page tries again by itself; the controller may have ended. " + now.text)
      : now.state === "broken" ? barn.el("p", { class: "note bad" }, "The run cannot be read " + ago + ": " + (now.text || "the server gives no reason") + ".") : null);
    note.style.maxWidth = "1240px";
    note.style.margin = "0 auto";
  }
  barn.onconnection(connection);

  function choose() {
    if (location.hash === "#main" && end) { main.focus(); return; }
    var wanted = location.hash.slice(1), view = barn.views[wanted] ? wanted : "overview";
    if (end) end();
    main.setAttribute("data-view", view);
    barn.fill(nav, Object.keys(barn.views).map(function (one) {
      return barn.el("a", { href: "#" + one, "aria-current": one === view ? "page" : null }, barn.views[one].title);
    }));
    barn.fill(main, barn.el("p", { class: "soft" }, "Waiting for the first figures ..."));
    end = barn.views[view].start(main);
  }
  function start() {
    barn.startClock(document.getElementById("clock"));
    choose();
    window.addEventListener("hashchange", function () { choose(); main.focus(); });
    connection();
    if (barn.embedded && barn.embedded.overview) barn.head(barn.embedded.overview.run);
    else barn.ontime(function () { if (barn.time()) barn.head(barn.time().run); });
  }
  if (barn.embedded) start();
  else barn.ask("/data/who").then(function (found) { barn.who = found; start(); }, function (error) {
    barn.fill(main, barn.el("p", { class: "note bad" }, error.message));
  });
})();
