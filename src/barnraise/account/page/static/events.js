// The events of the run: the newest of some kinds, of one worker or of all.
"use strict";
(function () {
  barn.views.events = {
    title: "Events",
    start: function (main) {
      var kinds = barn.el("select", { "aria-label": "Kind of events", change: load }, barn.el("option", { value: "" }, "all of note"));
      var node = barn.el("input", { type: "search", placeholder: "worker", "aria-label": "Worker", change: load });
      var body = barn.el("div", { role: "status" }), known = "";
      barn.fill(main, barn.card("Events", barn.el("div", { class: "row" }, barn.embedded ? null : [kinds, node]), body));
      function show(events) {
        barn.fill(body, events.length ? barn.table(["at", "kind", "what"], barn.eventsUntil(events).slice().reverse().map(function (one) { return [barn.duration(one[0]), one[1].replace(/_/g, " "), one[3]]; }), [], "Events")
          : barn.el("p", { class: "soft" }, "There is no such event."));
      }
      function load() {
        if (barn.embedded || !barn.who.names) { show(barn.time() ? barn.time().events : []); return; }
        barn.ask("/events?kinds=" + encodeURIComponent(kinds.value) + "&node=" + encodeURIComponent(node.value.trim())).then(function (found) {
          if (known !== found.kinds.join()) {
            known = found.kinds.join();
            var chosen = kinds.value;
            barn.fill(kinds, barn.el("option", { value: "" }, "all of note"), found.kinds.map(function (kind) { return barn.el("option", { value: kind }, kind.replace(/_/g, " ")); }));
            kinds.value = chosen;
          }
          show(found.events);
        }, function (error) { barn.fill(body, barn.el("p", { class: "bad" }, error.message)); });
      }
      var timer = setInterval(function () { if (!document.hidden && barn.at === null && !body.contains(document.activeElement)) load(); }, 3000);
      var end = barn.ontime(function () { if (barn.at !== null || barn.embedded) load(); });
      load();
      return function () { clearInterval(timer); end(); };
    },
  };
})();
