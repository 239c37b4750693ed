// The time that the page shows: now, or a moment of the run's past, which can be played at any speed.
"use strict";
(function () {
  var SPEEDS = [1, 10, 60, 600, 3600, 36000];
  var time = null, timer = null, listeners = [];
  barn.at = null; // seconds of the run's clock; null: the newest state
  barn.time = function () { return time; };
  barn.ontime = function (listener) {
    listeners.push(listener);
    return function () { listeners.splice(listeners.indexOf(listener), 1); };
  };
  function tell() { listeners.slice().forEach(function (one) { one(); }); }

  var range, label, play, speed, now;
  function end() { return time && time.end ? time.end : 0; }
  function set(seconds) {
    barn.at = seconds === null || seconds >= end() ? null : Math.max(0, seconds);
    show();
    tell();
  }
  function show() {
    range.max = String(Math.ceil(end()) || 1);
    if (document.activeElement !== range || barn.at === null) range.value = String(barn.at === null ? range.max : barn.at);
    var told = barn.at === null ? (barn.connection.state === "still" ? "at the end: " : "now: ") + barn.duration(end()) : barn.duration(barn.at) + " of " + barn.duration(end());
    if (label.textContent !== told) label.textContent = told;
    range.setAttribute("aria-valuetext", told);
    now.disabled = barn.at === null;
    play.textContent = timer ? "Pause" : "Play";
  }
  function stop() { clearInterval(timer); timer = null; }
  function toggle() {
    if (timer) { stop(); show(); return; }
    if (barn.at === null) barn.at = 0;
    var slow = window.matchMedia && matchMedia("(prefers-reduced-motion: reduce)").matches, step = slow ? 1000 : 100;
    timer = setInterval(function () {
      var rate = speed.value === "all" ? end() / 30 : Number(speed.value);
      var next = barn.at + rate * step / 1000;
      if (next >= end()) stop();
      set(next);
    }, step);
    show();
  }

  // Put the controls into the footer, and follow the run's time.
  barn.startClock = function (footer) {
    play = barn.el("button", { click: toggle }, "Play");
    speed = barn.el("select", { "aria-label": "Speed of playback" }, barn.el("option", { value: "all" }, "all in 30 s"),
      SPEEDS.map(function (rate) { return barn.el("option", { value: rate }, rate.toLocaleString("en") + " times"); }));
    range = barn.el("input", { type: "range", min: "0", step: "any", "aria-label": "Time of the run", input: function () { stop(); set(Number(range.value)); } });
    label = barn.el("output", { class: "soft" });
    now = barn.el("button", { click: function () { stop(); set(null); } }, "Now");
    barn.fill(footer, play, speed, range, label, now);
    barn.follow("time", function (data) { time = data; show(); tell(); });
  };

  // Return the sum of a figure over the bins until the shown time, and how many bins that are.
  barn.until = function (name) {
    var values = time[name], stop = barn.at === null ? values.length : Math.min(values.length, Math.ceil(barn.at / time.width)), sum = 0;
    for (var at = 0; at < stop; at++) sum += values[at];
    return { sum: sum, bins: stop };
  };
  barn.eventsUntil = function (events) { return barn.at === null ? events : events.filter(function (one) { return one[0] <= barn.at; }); };
})();
