-- Stands before everything else of acquire: locks that are free. To define the functions
-- below, and to call them for each, would cost more than this. What fails here is left to
-- them, and fails there in the same way.
local call, replies, left = redis.pcall, {}, false
for i, key in ipairs(KEYS) do
    if call('pttl', key) == -2 and call('hset', key, ARGV[2 * i], '1') == 1 then
        if call('pexpire', key, ARGV[2 * i - 1]) == 1 then
            replies[i] = 1
        else
            call('del', key)
        end
    end
    left = left or not replies[i]
end
if not left then
    return #replies == 1 and 1 or replies
end
