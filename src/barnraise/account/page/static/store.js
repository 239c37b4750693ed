// The views of the run: fetched once, then patched by server-sent events; polled where the browser lacks those.
"use strict";
(function () {
  var POLL = 5000, SILENCE = 40000;
  var embedded = document.getElementById("data");
  barn.embedded = embedded ? JSON.parse(embedded.textContent) : null;

  // Make the changes of a patch in place.
  barn.apply = function (data, changes) {
    Object.keys(changes.set || {}).forEach(function (key) { data[key] = changes.set[key]; });
    Object.keys(changes.in || {}).forEach(function (key) {
      Object.keys(changes.in[key]).forEach(function (entry) { data[key][entry] = changes.in[key][entry]; });
    });
    Object.keys(changes.out || {}).forEach(function (key) {
      changes.out[key].forEach(function (entry) { delete data[key][entry]; });
    });
  };

  // The state of the connection: waiting (nothing came yet), live, stale (lost), broken (the run cannot be read),
  // still (a report). `since` is when it began.
  barn.connection = { state: barn.embedded ? "still" : "waiting", text: "", since: Date.now() };
  var listeners = [];
  barn.onconnection = function (listener) { listeners.push(listener); };
  function connect(state, text) {
    var now = barn.connection;
    if (now.state === state && now.text === (text || "")) return;
    barn.connection = { state: state, text: text || "", since: Date.now() };
    listeners.forEach(function (one) { one(); });
  }

  // Follow a view: `changed(data)` is called with each state of it. Returns a function that ends that.
  barn.follow = function (view, changed) {
    if (barn.embedded) {
      if (barn.embedded[view]) changed(barn.embedded[view]);
      return function () {};
    }
    var source = null, timer = null, over = false, data = null, due = false, turns = 0, heard = 0;
    function show() {
      if (due || over) return;
      due = true;
      requestAnimationFrame(function () { due = false; if (!over) changed(data); });
    }
    function later(work) { clearTimeout(timer); timer = setTimeout(work, POLL); }
    function load() {
      clearTimeout(timer);
      var turn = ++turns;
      return barn.ask("/data/" + view).then(function (whole) {
        if (over || turn !== turns) return;
        data = whole.data;
        connect("live");
        show();
        if (!window.EventSource) later(load);
        else if (!source && !document.hidden) listen(whole.id);
      }, function (error) {
        if (over || turn !== turns) return;
        connect(data || error instanceof TypeError ? "stale" : "broken", error instanceof TypeError ? "" : error.message);
        later(load);
      });
    }
    function listen(after) {
      stop();
      heard = Date.now();
      source = new EventSource("/stream/" + view + "?after=" + after);
      source.addEventListener("patch", function (event) {
        var changes = JSON.parse(event.data);
        heard = Date.now();
        try { barn.apply(data, changes); } catch (missed) { stop(); load(); return; }
        connect("live");
        show();
      });
      source.addEventListener("again", function () { stop(); load(); });
      source.addEventListener("trouble", function (event) {
        var text = JSON.parse(event.data);
        connect(text ? "broken" : "live", text);
      });
      source.addEventListener("alive", function () { heard = Date.now(); });
      source.addEventListener("open", function () { connect("live"); });
      source.addEventListener("error", function () {
        connect("stale");
        if (source && source.readyState === 2) { stop(); later(load); }
      });
    }
    function stop() { if (source) { source.close(); source = null; } }
    function seen() { if (document.hidden) { stop(); clearTimeout(timer); } else if (!source) load(); }
    // A network that went away tells nothing: without a sign of life the page begins again.
    var silence = setInterval(function () {
      if (source && Date.now() - heard > SILENCE) { stop(); connect("stale"); load(); }
    }, POLL);
    document.addEventListener("visibilitychange", seen);
    load();
    return function () { over = true; stop(); clearTimeout(timer); clearInterval(silence); document.removeEventListener("visibilitychange", seen); };
  };
})();
